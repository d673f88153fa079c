//! An executable model of the memory management of Linux.
