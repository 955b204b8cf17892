"""Which networks a system is made of: of tables, of images, of texts."""
