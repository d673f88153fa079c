//! The header of a swap area, as `mkswap` writes it.

use lotsfree_units::Bytes;

use super::Error;

/// A page.
const PAGE: u64 = 4096;
/// Less than this is not worth the name, and `mm/swapfile.c` takes no empty area.
const LEAST: u64 = 10 * PAGE;

/// The first page of a swap area of so many bytes: `union swap_header` of the kernel's
/// `include/linux/swap.h`. After 1,024 bytes for a boot loader follow the version, 1, the number of the last
/// page, and how many bad pages there are; the page ends with the signature.
///
/// # Errors
/// If the area is too small or too large.
pub(crate) fn header(size: Bytes) -> Result<Vec<u8>, Error> {
    let last = u32::try_from(size.0 / PAGE).ok().filter(|_| size.0 >= LEAST).map(|pages| pages - 1);
    let last = last.ok_or_else(|| Error::unusable("swap", format!("{size} cannot be a swap area")))?;
    let mut page = vec![0; 1024];
    for field in [1_u32, last, 0] {
        page.extend_from_slice(&field.to_le_bytes());
    }
    let signature = b"SWAPSPACE2";
    page.resize(PAGE as usize - signature.len(), 0);
    page.extend_from_slice(signature);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_fields_that_swapon_checks() {
        let page = header(Bytes::mib(1)).expect("large enough");
        assert_eq!(page.len(), 4096);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        let field = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        assert_eq!([field(1024), field(1028), field(1032)], [1, 255, 0]);
        assert!(page[..1024].iter().chain(&page[1036..4086]).all(|byte| *byte == 0));
        // Half a page is not used.
        let page = header(Bytes(1024 * 1024 + 2048)).expect("large enough");
        assert_eq!(page[1028], 255);
    }

    #[test]
    fn there_is_no_empty_area() {
        assert!(header(Bytes::kib(39)).is_err());
        assert!(header(Bytes::kib(40)).is_ok());
        assert!(header(Bytes(1 << 45)).is_err());
    }
}
