-- Which of the texts $1, the passages of a file in order and counted from 1, are in what language though they do not tell it.
SELECT place, language FROM cauce_languages_around($1)
