"""An app on Flower that trains with PRECAD."""
