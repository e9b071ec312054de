"""Pure values that every layer of every service may use: errors, access scope, identifiers."""
