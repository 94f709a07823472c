"""`doctor`: facts about a pipeline, and the rules that make findings of them."""
