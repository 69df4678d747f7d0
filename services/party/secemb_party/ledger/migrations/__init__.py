"""Migrations, one module each; a module that has been released is not edited any more."""
