"""What the site has beside Sphinx: pages of every public name, tables from records, named tests."""
