//! What a scenario yields on either machine: samples, actors and a summary in one directory.
