"""What requests may say, under the names of OpenAI's API and of vLLM's extras."""
