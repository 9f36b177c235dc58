"""The picture of an answer: both logs, each source's runs on them, and where the group resumes."""
