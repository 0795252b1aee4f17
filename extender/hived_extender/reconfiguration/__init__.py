"""Taking up another configuration without a restart, and telling beforehand what that does to whom."""
