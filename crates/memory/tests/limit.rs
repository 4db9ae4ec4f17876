//! The limit on the number of mappings. In a program of its own, because the test uses all of them.

use ringway_memory::Mapping;

#[test]
fn the_mapping_after_the_last_guarded_one_is_an_error_and_a_place_given_back_serves_again() {
    let mut mappings: Vec<Mapping> = (0..16_384).map(|_| Mapping::private(4096).expect("memory")).collect();
    let refused = Mapping::private(4096).expect_err("no place is left");
    assert!(refused.to_string().contains("16384 memory mappings are in use"), "{refused}");
    drop(mappings.swap_remove(77));
    let again = Mapping::private(4096).expect("a place was given back");
    assert!(again.whole().write(&[3; 4096]));
    assert!(Mapping::private(4096).is_err());
}
