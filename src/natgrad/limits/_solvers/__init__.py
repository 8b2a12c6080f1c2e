"""The programs behind the limits and what solves them."""
