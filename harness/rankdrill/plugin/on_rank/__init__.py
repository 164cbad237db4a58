"""The rank's side of the plugin: a whole small pytest session that runs what it is told to."""
