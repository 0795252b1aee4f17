"""Writing every decision down, and deciding anew what was written down."""
