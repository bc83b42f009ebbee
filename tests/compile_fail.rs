//! What must not compile: the API that changes an exchange cannot leave its shard, nor outlive its callback (L-2).

#[test]
fn l_2_the_mutating_api_cannot_leave_the_shard() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
