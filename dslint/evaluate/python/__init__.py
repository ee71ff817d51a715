"""Python programs and notebooks: followed as far as they are static, never executed."""
