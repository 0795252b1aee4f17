"""Parts that commands about defragmentation share."""
