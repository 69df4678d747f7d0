"""The demonstration: two servers, a few hundred devices, a model that learns, and what each server saw."""
