"""Identity, images and networks served by the product itself, from files under one directory."""
