"""Reference tables that steps enrich records with."""
