"""One module for each page of docs/reference that is generated from the code; scripts/generate_docs.py writes them."""
