"""How much of gradient descent's generalization each optimizer keeps, and in how many steps."""
