"""What a catalogue and a fleet will cost, before anybody has bought a machine."""
