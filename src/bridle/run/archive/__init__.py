"""Operations on a stored session as a whole: export, import, redaction, audit.

They work on any store and need no agent. A session that they change is locked meanwhile.
"""
