//! Transparent huge pages.

use crate::rule::rules;

rules! {}
