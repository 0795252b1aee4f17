"""Reading pods: JSON and annotations become requests, and admission judges them."""
