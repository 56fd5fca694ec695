"""Language models: asked, counted, paid."""
