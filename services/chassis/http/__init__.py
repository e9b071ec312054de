"""What every HTTP entry point shares: error rendering, caller scope, health."""
