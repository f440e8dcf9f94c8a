"""How accurate is a classifier on data without labels?"""
