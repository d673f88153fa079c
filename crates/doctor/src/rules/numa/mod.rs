//! NUMA.

use crate::rule::rules;

rules! {}
