-- Words of many languages: a text configuration for each that the server can inflect, one rule for telling them apart, no
-- word left out of a text, and spelling that no reader sees made one. What was made by the rules of before is made again
-- row by row (sql/queries/renew_words.sql).

-- A language, the server's name for it where there is a stemmer, its commonest words, and, after hyphens, how its other
-- words often end.
CREATE TEMPORARY TABLE cauce_known_language (language text PRIMARY KEY, stemmer text, marks text NOT NULL) ON COMMIT DROP;
INSERT INTO cauce_known_language (language, stemmer, marks) VALUES
    ('es', 'spanish',
     'el la los las de del que qué y o en un una por con para se es al lo su sus no como son fue cómo más pero '
     'este esta esto entre cuando sin sobre cuál cuáles cuántos quién dónde ha hay está están ser también según '
     'desde hasta cada si le les ya muy a e -ar -as -do -es -io -or -os -ta -te -to -ón'),
    ('en', 'english',
     'the of and or to in is are was were that it for on as with by at be this from an which not have has what who '
     'how did does do when where many their its a you your can will been must if than then only into i -ct -ed -er '
     '-es -le -me -ng -on -rd -re -se -te -ts'),
    ('fr', 'french',
     'le la les de des du et ou en un une par avec pour se est sont était au aux ce cette ces que qui dans sur ne '
     'pas plus il elle ils son sa ses leur comme mais être l d s n c qu j votre vous nous sans à où été a si -de '
     '-er -es -ez -it -le -nt -on -re -se -te -ur'),
    ('pt', 'portuguese',
     'o a os as de do da dos das e ou em um uma por com para se é são foi ao aos no na nos nas pelo pela que não '
     'mais mas este esta isto seu sua seus suas como quando entre sem sobre ser está estão também qual quem onde '
     'há à às já num numa você pode -ar -as -da -do -es -ha -or -os -ra -ta -te -to -ão'),
    ('it', 'italian',
     'il lo la i gli le di del dello della dei degli delle da dal dalla e o ed in un una uno per con si è sono era '
     'al alla ai alle nel nella nei sul sulla che non più ma come questo questa quando chi dove essere anche tra '
     'fra dell nell all l d c suo sua loro ha può se a -le -ne -rd -re -ta -te -ti -to'),
    ('de', 'german',
     'der die das den dem des und oder in im ein eine einen einem einer eines für mit von vom zu zum zur ist sind '
     'war wird werden auf an am aus bei nach nicht auch als es sie er wie was wer wo sich durch über unter wenn '
     'kann bis um dass nur hat haben diese dieser dieses ihr ihre sein -en -er -es -rt -te'),
    ('nl', 'dutch',
     'de het een en of in is zijn was werd wordt worden van voor met op te ten ter dat die dit deze niet ook als '
     'aan bij naar uit door er maar om wat wie hoe waar wanneer hij zij ze je uw u kan kunnen heeft hebben geen '
     'over tot nog dan onder moet zich -de -en -er -es -ge -ie -rd'),
    ('ca', 'catalan',
     'el la els les de del dels i o en un una uns unes per amb a que què és són va al als ho no com més però '
     'aquest aquesta quan entre sense sobre ha hi està ser també seva seu seus seves l d s n pel pels cada si molt '
     'on qui m t -ar -at -es -eu -ió -or -ta -ts'),
    ('gl', NULL,
     'o a os as de do da dos das e ou en un unha por con para se é son foi ao aos á ás no na nos nas polo pola que '
     'non máis pero este esta isto seu súa seus súas como cando entre sen sobre ser está tamén cal quen onde hai '
     'xa nun nunha pode unhas uns ó ós'),
    ('ro', 'romanian',
     'și si sau în la de din pe cu pentru un o al ale a ai este sunt era fi fost să nu mai ca că care ce cum când '
     'unde dar prin sub între după lui ei lor această acest aceste acestui se au vă dacă poate cel cea '
     'dumneavoastră doar fără -at -ea -le -ne -re -te -tă -ul -ți'),
    ('sv', 'swedish',
     'och eller i en ett det den de som är var att av för med på till från inte om men har hade kan ska vid under '
     'över mellan när hur vad vem där denna detta dessa sig sin sitt du din ditt efter också måste bara så än blir '
     '-an -de -en -er -et -ll -ra -re'),
    ('da', 'danish',
     'og eller i en et det den de som er var at af for med på til fra ikke om men har havde kan skal ved under '
     'over mellem når hvordan hvad hvem hvor denne dette disse sig sin sit du din dit efter også må kun så end '
     'bliver blev der man -de -en -er -et -ge -ng -re -st -te'),
    ('no', 'norwegian',
     'og eller i en et det den de som er var at av for med på til fra ikke om men har hadde kan skal ved under '
     'over mellom når hvordan hva hvem hvor denne dette disse seg sin sitt du din ditt etter også må bare så enn '
     'blir ble ei deg hvis være -ar -de -en -er -et -ig -je -re -te -tt'),
    ('fi', 'finnish',
     'ja tai on ei ovat oli että se ne hän joka jotka kun jos kuin mutta myös vain niin tämä tämän tässä ole olla '
     'ollut sen siitä sekä kanssa mukaan jälkeen ennen voi sinun mitä mikä missä kuka eivät voit nämä täytyy tulee '
     'hyvin -aa -an -en -et -in -la -sa -si -ta -tä -än'),
    ('hu', 'hungarian',
     'a az és vagy egy ez hogy nem is van volt meg el ki be de ha csak mint minden már még amely aki ami lesz kell '
     'lehet között után alatt szerint ezt azt ennek ezek itt ott hol mi milyen sem nincs nincsenek vannak által '
     'kérem'),
    ('tr', 'turkish',
     've veya bir bu şu o da de ile için olarak olan gibi daha en çok ne mi mı değil var yok her kadar sonra ise '
     'ancak ama ya hangi nasıl nerede kim tarafından bunun lütfen üzerinde olduğu oldu içinde size mu mü'),
    ('pl', NULL,
     'i lub w we na z ze do od dla po przez o u za nie to jest są był była że się jak który która które co kto '
     'gdzie kiedy ale ten ta tego jego jej ich oraz pod nad przed czy tylko być ma może a aby przy już musi'),
    ('cs', NULL,
     'a nebo v ve na z ze do od pro po o u za s se si je jsou byl byla že který která které co kdo kde kdy ale ten '
     'ta to tento tato toto jeho její jejich nad pod před být má může není aby při již pouze jako nelze musí i k'),
    ('ru', 'russian',
     'и или в во на с со к ко от до для из по за о об у не ни что это как который которая которые он она они его '
     'её их был была было быть есть но а при под над между только так же если вы мы то может также где когда кто '
     'чтобы этот эта'),
    ('uk', NULL,
     'і й та або в у на з із зі до від для по за про не ні що це як який яка які він вона вони його її їх був була '
     'було бути є але а при під над між тільки так ж якщо ви ми то може також де коли хто щоб цей ця'),
    ('bg', NULL,
     'и или в във на с със до от за по не че това как който която които той тя те го я ги беше са съм е си ще да '
     'но а при под над между само така ако вие ние то може също къде кога кой този тази се без'),
    ('el', 'greek',
     'ο η το οι τα του της των τον την τους τις και ή σε στο στη στην στον στα στις από με για που να δεν είναι '
     'ήταν θα ως αλλά αν ένα ένας μια ότι πως αυτό αυτή αυτός αυτά όταν πού μόνο πρέπει δε μη μην σας έχει κατά'),
    ('eu', 'basque',
     'eta edo da dira zen ez du dute bat hau hori honek zuen dago daude baina ere izan den diren dela zure baino '
     'egin behar ezin bere ditu duen dituzten bezala gabe izango zein nola non hemen gehiago bai'),
    ('ga', 'irish',
     'an na agus nó i sa is tá bhí ar ag le do de den don go ní nach a ó faoi chun mar atá seo sin é í iad leis '
     'gur níl bhfuil mé tú sé sí roimh gach aon má nuair ach agat féidir amháin idir'),
    ('id', 'indonesian',
     'dan atau di ke dari yang untuk dengan pada ini itu adalah tidak akan oleh sebagai dalam ada juga dapat telah '
     'sudah bisa harus karena lebih hanya jika anda kami mereka saya bukan serta antara atas sebuah saat apa siapa '
     'bagaimana belum'),
    ('lt', 'lithuanian',
     'ir ar arba į iš su be ant prie po per už nuo iki dėl apie yra buvo bus nėra kad kaip kas kur kai bet o tai '
     'šis ši šio šios jis ji jo jos jų jūs tik taip pat turi gali būti ne jei daugiau jūsų kuris kuri'),
    ('sr', 'serbian',
     'и или у на са с к од до за из по о не је су био била да се што који која које ово то овај ова али а као ће '
     'би при под над само ако ви ми може где када ко i ili u na sa s k od do za iz po o ne je su bio bila da se '
     'što koji koja koje ovo to ovaj ova ali a kao će bi pri pod nad samo ako vi mi može gde kada ko nije није'),
    ('hy', 'armenian',
     'և եւ կամ է են էր ու մի այս այդ այն որ որը որոնք համար հետ մեջ վրա ոչ չի չեն պետք կա իր նրա նրանք դուք մենք '
     'եթե բայց նաև միայն ինչ երբ որտեղ ով լինել մոտ ից ձեր'),
    ('ar', 'arabic',
     'في من على إلى الى عن أن ان إن لا ما هذا هذه ذلك التي الذي الذين هو هي هم كان كانت أو او و ثم مع بعد قبل بين '
     'كل غير قد لم لن ليس إذا حتى عند يجب أي تم يكون كما لقد هناك'),
    ('hi', 'hindi',
     'है हैं था थे थी के का की को में से पर और या यह वह ये वे नहीं ने भी ही तो कि जो एक इस उस लिए साथ कर करें किया '
     'हो होना होता गया गई अगर आप हम क्या कब कहाँ कौन कैसे बाद अपने तक'),
    ('ne', 'nepali',
     'छ छन् थियो हो हुन् को का की ले मा र वा लाई बाट यो त्यो यी यस त्यस पनि नै तर एक गर्न गर्नुहोस् गरेको भएको हुन '
     'हुने छैन सँग लागि भने तपाईं हामी के कुन कहाँ कसरी अनि तथा देखि यदि'),
    ('ta', 'tamil',
     'மற்றும் அல்லது ஒரு இந்த அந்த இது அது என்று என்ற என உள்ள இல்லை இருந்து ஆகும் உள்ளது மேலும் ஆனால் போன்ற கொண்ட '
     'மூலம் பின்னர் முன் வேண்டும் முடியும் நான் நீங்கள் அவர் எந்த என்ன எப்படி எங்கே யார்'),
    ('yi', 'yiddish',
     'דער די דאס דאָס דעם און אדער אָדער אין אויף פון פֿון צו מיט פאר פֿאַר איז זענען געווען נישט ניט אז אַז וואס '
     'וואָס ווער ווי וואו וווּ א אַ אן אַן זיך ער זי זיי איר אבער אָבער אויך');

-- As cauce_es and cauce_en (migration 0003): stop words are left out, where the server has a list of them, and accents go
-- before the stemmer, so that people may leave them out.
DO $$
DECLARE
    known record;
BEGIN
    FOR known IN
        SELECT language, stemmer, dictinitoption ~ 'stopwords' AS has_stop_words
        FROM cauce_known_language
        JOIN pg_catalog.pg_ts_dict ON dictname = stemmer || '_stem' AND dictnamespace = 'pg_catalog'::regnamespace
        WHERE language NOT IN ('es', 'en')
    LOOP
        EXECUTE format('CREATE TEXT SEARCH CONFIGURATION cauce_%s (COPY = cauce_simple)', known.language);
        IF known.has_stop_words THEN
            EXECUTE format(
                'CREATE TEXT SEARCH DICTIONARY cauce_stop_%s'
                ' (TEMPLATE = pg_catalog.simple, STOPWORDS = %s, ACCEPT = false)',
                known.language,
                known.stemmer
            );
        END IF;
        EXECUTE format(
            'ALTER TEXT SEARCH CONFIGURATION cauce_%s'
            ' ALTER MAPPING FOR asciiword, word, asciihword, hword, hword_asciipart, hword_part'
            ' WITH %s unaccent, %s_stem',
            known.language,
            CASE WHEN known.has_stop_words THEN format('cauce_stop_%s,', known.language) END,
            known.stemmer
        );
    END LOOP;
END;
$$;

-- The table above as constants, which columns may be generated from: cauce_languages, those with a stemmer;
-- cauce_configuration, what inflects a language; cauce_particles, the words of a language that nobody looks for, which are
-- the first 24 of it; cauce_marks, the languages that a word or an ending speaks for.
DO $$
BEGIN
    EXECUTE (
        SELECT format(
                   'CREATE FUNCTION cauce_languages() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN %L::text[];'
                   'CREATE FUNCTION cauce_configuration(language text) RETURNS regconfig'
                   ' LANGUAGE sql IMMUTABLE PARALLEL SAFE'
                   ' RETURN CASE language %s ELSE ''cauce_simple''::regconfig END;'
                   'CREATE FUNCTION cauce_particles(language text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE'
                   ' RETURN CASE language %s ELSE ''{}''::text[] END;',
                   array_agg(language ORDER BY language),
                   string_agg(format('WHEN %L THEN ''cauce_%s''::regconfig', language, language), ' '),
                   string_agg(
                       format(
                           'WHEN %L THEN %L::text[]', language, (string_to_array(unaccent('unaccent', marks), ' '))[:24]
                       ),
                       ' '
                   )
               )
        FROM cauce_known_language
        WHERE stemmer IS NOT NULL
    );
    EXECUTE (
        SELECT format(
                   'CREATE FUNCTION cauce_marks() RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN %L::jsonb;',
                   jsonb_object_agg(mark, languages)
               )
        FROM (
            SELECT mark, jsonb_agg(DISTINCT language) AS languages
            FROM cauce_known_language
            CROSS JOIN LATERAL string_to_table(marks, ' ') AS mark
            GROUP BY mark
        ) AS marked
    );
END;
$$;

-- The signs of scripts that put no spaces between words, or hang particles on them: Thai, Lao, Burmese, Khmer, kana, Han,
-- Hangul.
CREATE FUNCTION cauce_unspaced() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '\u0e01-\u0eff\u1000-\u109f\u1780-\u17d3\u3005-\u3007\u3040-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3'
       '\uf900-\ufaff\U00020000-\U0003ffff';

-- The text with each letter in one spelling, and without what has no width: soft hyphens, joiners, and marks for which
-- there is no composed letter.
CREATE FUNCTION cauce_normal(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN regexp_replace(
    normalize(content, NFC), '[\u00ad\u0300-\u036f\u0640\u064b-\u0652\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]', '', 'g'
);

-- es, en and so on, or und where none prevails: each of the commonest words has two votes for every language that it
-- belongs to, an ending has one, and an eighth of the words must be of the language's commonest.
CREATE OR REPLACE FUNCTION cauce_language(content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
SET plan_cache_mode = 'force_generic_plan'
AS $$
DECLARE
    told text;
BEGIN
    WITH words AS MATERIALIZED (
        SELECT lexeme AS word, cardinality(positions) AS times
        FROM unnest(to_tsvector('pg_catalog.simple', cauce_normal(content)))
        WHERE lexeme !~ '[0-9]'
    ),
    votes AS (
        SELECT language, sum(times * weight) AS votes, sum(times) FILTER (WHERE weight = 2) AS common
        FROM (
            SELECT word AS mark, times, 2 AS weight FROM words
            UNION ALL
            SELECT '-' || right(word, 2), times, 1 FROM words WHERE length(word) >= 4
        ) AS cast_by
        CROSS JOIN LATERAL jsonb_array_elements_text(cauce_marks() -> mark) AS language
        GROUP BY language
    )
    SELECT min(language) INTO told
    FROM votes
    WHERE votes = (SELECT max(votes) FROM votes)
    HAVING count(*) = 1 AND min(common) * 8 >= (SELECT sum(times) FROM words);
    RETURN coalesce(told, 'und');
END;
$$;

-- The words as the language inflects them. The parser sees no separators: it would take P-4711/B for a number and a
-- path.
CREATE OR REPLACE FUNCTION cauce_words(language text, content text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN to_tsvector(
    cauce_configuration(language),
    regexp_replace(content, '[^[:alnum:]\u0900-\u0963\u0966-\u0dff]+|[' || cauce_unspaced() || ']+', ' ', 'g')
);

-- The signs of scripts without spaces, each alone and with the next one; without those alone that have a neighbour, where
-- pairs are enough.
CREATE FUNCTION cauce_signs(content text, pairs_only boolean) RETURNS SETOF text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT form
    FROM regexp_matches(content, '[' || cauce_unspaced() || ']+', 'g') AS found (run)
    CROSS JOIN LATERAL (
        SELECT sign, sign || lead(sign) OVER (ORDER BY place) AS pair
        FROM string_to_table(run[1], NULL) WITH ORDINALITY AS signs (sign, place)
    ) AS signs
    CROSS JOIN LATERAL (
        SELECT pair AS form WHERE pair IS NOT NULL
        UNION ALL
        SELECT sign WHERE NOT pairs_only OR run[1] = sign
    ) AS forms;
END;

-- What a text is found by, each word as often as it stands there: the document of the lexical index. Stop words, which the
-- language's configuration passes over, stand in it once, as they are, but for its particles: who asks for nothing else
-- finds them, and they make no text much longer.
CREATE OR REPLACE FUNCTION cauce_lexemes(language text, content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    normal text := cauce_normal(content);
    words tsvector := cauce_words(language, normal);
BEGIN
    RETURN coalesce(
        (
            SELECT string_agg(form, ' ')
            FROM (
                SELECT rtrim(repeat(lexeme || ' ', cardinality(positions))) FROM unnest(words)
                UNION ALL
                SELECT lexeme
                FROM unnest(cauce_words('und', normal))
                WHERE positions[1] NOT IN (SELECT unnest(inflected.positions) FROM unnest(words) AS inflected)
                  AND lexeme <> ALL (cauce_particles(language))
                UNION ALL
                SELECT code
                FROM cauce_codes(regexp_replace(normal, '[' || cauce_unspaced() || ']+', ' ', 'g')) AS code
                WHERE NOT words @@ quote_literal(code)::tsquery
                UNION ALL
                SELECT cauce_signs(normal, false)
            ) AS forms (form)
        ),
        ''
    );
END;
$$;

-- What a question looks for in texts of some languages and in those of none: each of its words as these inflect it,
-- without the stop words of its own language, or of any of these where its own cannot be told, unless it has no other;
-- and its codes, and the signs of scripts without spaces, which belong to no word.
DROP FUNCTION cauce_question(text);
DROP FUNCTION cauce_question_forms(text);
CREATE FUNCTION cauce_question_forms(content text, languages text[] DEFAULT cauce_languages())
RETURNS TABLE (word text, form text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
SET plan_cache_mode = 'force_generic_plan'
AS $$
#variable_conflict use_column
DECLARE
    normal text := cauce_normal(content);
    spaced text := regexp_replace(normal, '[' || cauce_unspaced() || ']+', ' ', 'g');
    told text := cauce_language(content);
    stopping text[] := CASE WHEN told = 'und' THEN languages ELSE ARRAY[told] END;
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT word, says, bool_or(says) OVER () AS any_says
        FROM (
            SELECT DISTINCT lower(piece) AS word
            FROM regexp_split_to_table(spaced, '[^[:alnum:]\u0900-\u0963\u0966-\u0dff]+') AS piece
            WHERE piece <> ''
        ) AS pieces
        CROSS JOIN LATERAL (
            SELECT NOT EXISTS (
                       SELECT
                       FROM unnest(stopping) AS language
                       WHERE to_tsvector(cauce_configuration(language), word) = ''
                   ) AS says
        ) AS judged
    ),
    inflected AS MATERIALIZED (
        SELECT DISTINCT word, lexeme AS form
        FROM asked
        CROSS JOIN LATERAL unnest(languages || 'und'::text) AS language
        CROSS JOIN LATERAL unnest(to_tsvector(cauce_configuration(language), word))
        WHERE says OR NOT any_says
    )
    SELECT word, form FROM inflected
    UNION ALL
    SELECT NULL, code
    FROM cauce_codes(spaced) AS code
    WHERE NOT EXISTS (SELECT FROM inflected WHERE form = code)
    UNION ALL
    SELECT DISTINCT NULL, sign FROM cauce_signs(normal, true) AS sign;
END;
$$;

CREATE FUNCTION cauce_question(content text, languages text[] DEFAULT cauce_languages()) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(string_agg(DISTINCT form, ' '), '') FROM cauce_question_forms(content, languages);
END;

-- By which edition of these rules the words of a chunk were made. An index of those that are to be made again.
ALTER TABLE module_embeddings_file_chunk ADD COLUMN words_edition smallint NOT NULL DEFAULT 1;
ALTER TABLE module_embeddings_file_chunk ALTER COLUMN words_edition SET DEFAULT 2;
CREATE INDEX module_embeddings_file_chunk_old_words ON module_embeddings_file_chunk (id) WHERE words_edition < 2;

-- Those of resources are made again within this run (sql/templates/table.sql): their texts are few and short.
DELETE FROM module_embeddings_resource_lexemes;
CREATE INDEX module_embeddings_resource_lexemes_language ON module_embeddings_resource_lexemes (tenant_id, language);
