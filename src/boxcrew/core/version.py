"""The version of boxcrew, which everything else reads from here."""

VERSION = "0.1.0"
