"""The ranks' side of a question: what a script has them do, and what they tell."""
