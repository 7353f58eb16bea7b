"""`bridle chat`: command.py reads prompts, conversation.py runs them, slash_commands.py has the /commands."""
