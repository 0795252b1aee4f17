"""The paths of our HTTP interface and the JSON that goes over them."""
