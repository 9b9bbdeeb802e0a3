"""The SGLang plugin: ``--attention-backend gdn_tile``."""
