"""Dead letters as people look at them, and chosen ones through the pipeline again."""
