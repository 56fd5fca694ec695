"""This plugin has no hooks: it uses those of the others. Its public names are entry points."""
