"""Commands that control a run of another process: cancel, steer, pause."""
