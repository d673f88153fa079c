//! Control groups and containers.

use crate::rule::rules;

rules! {}
