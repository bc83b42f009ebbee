//! Tests of the inbox that need no model.
