//! Page faults and locked memory.

use crate::rule::rules;

rules! {}
