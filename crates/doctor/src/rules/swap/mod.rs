//! Swap, overcommit and the OOM killer.

use crate::rule::rules;

rules! {}
