"""Migrations, one module each; do not edit a module after its release."""
