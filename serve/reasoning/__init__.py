"""What models think before they answer."""
