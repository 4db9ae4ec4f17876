//! The requests of netmap's control interface: numbers and layouts of `sys/net/netmap.h` and `sys/net/netmap_legacy.h`, API 14.

use crate::user::Plain;

/// Versions of the API that are understood.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u16> = 14..=15;
/// The version that this library has.
pub(crate) const VERSION: u16 = 14;

/// ioctl numbers.
pub(crate) const NIOCGINFO: u64 = 0xc03c_6991;
pub(crate) const NIOCREGIF: u64 = 0xc03c_6992;
pub(crate) const NIOCTXSYNC: u64 = 0x6994;
pub(crate) const NIOCRXSYNC: u64 = 0x6995;
pub(crate) const NIOCCONFIG: u64 = 0xc110_6996;
pub(crate) const NIOCCTRL: u64 = 0xc058_6997;

/// Types of requests (`NETMAP_REQ_*`).
pub(crate) mod request {
    pub(crate) const REGISTER: u16 = 1;
    pub(crate) const PORT_INFO_GET: u16 = 2;
    pub(crate) const VALE_ATTACH: u16 = 3;
    pub(crate) const VALE_DETACH: u16 = 4;
    pub(crate) const VALE_LIST: u16 = 5;
    pub(crate) const PORT_HDR_SET: u16 = 6;
    pub(crate) const PORT_HDR_GET: u16 = 7;
    pub(crate) const VALE_NEWIF: u16 = 8;
    pub(crate) const VALE_DELIF: u16 = 9;
    pub(crate) const VALE_POLLING_ENABLE: u16 = 10;
    pub(crate) const VALE_POLLING_DISABLE: u16 = 11;
    pub(crate) const POOLS_INFO_GET: u16 = 12;
    pub(crate) const SYNC_KLOOP_START: u16 = 13;
    pub(crate) const SYNC_KLOOP_STOP: u16 = 14;
    pub(crate) const CSB_ENABLE: u16 = 15;
}

/// Modes of a registration (`NR_REG_*`).
pub(crate) mod mode {
    pub(crate) const DEFAULT: u32 = 0;
    pub(crate) const ALL_NIC: u32 = 1;
    pub(crate) const SW: u32 = 2;
    pub(crate) const ONE_NIC: u32 = 4;
    pub(crate) const PIPE_MASTER: u32 = 5;
    pub(crate) const PIPE_SLAVE: u32 = 6;
    pub(crate) const NULL: u32 = 7;
}

/// Flags of a registration (`NR_*`).
pub(crate) mod flag {
    pub(crate) const MONITOR_TX: u64 = 0x100;
    pub(crate) const MONITOR_RX: u64 = 0x200;
    pub(crate) const ZCOPY_MON: u64 = 0x400;
    pub(crate) const EXCLUSIVE: u64 = 0x800;
    pub(crate) const RX_RINGS_ONLY: u64 = 0x2000;
    pub(crate) const TX_RINGS_ONLY: u64 = 0x4000;
    pub(crate) const ACCEPT_VNET_HDR: u64 = 0x8000;
    pub(crate) const DO_RX_POLL: u64 = 0x10000;
    pub(crate) const NO_TX_POLL: u64 = 0x20000;
}

/// Declares structures that are nothing but their bytes, with their sizes.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == $size);

            // SAFETY: numbers only; their sizes add up to the structure's, so that there is no padding.
            unsafe impl Plain for $name {}
            const _: () = assert!(0 $(+ size_of::<$type>())* == $size);
        )*
    };
}

structures! {
    /// `struct nmreq_header`.
    Header: 88 {
        version: u16,
        kind: u16,
        reserved: u32,
        name: [u8; 64],
        options: u64,
        body: u64,
    }

    /// `struct nmreq_option`.
    OptionHeader: 24 {
        next: u64,
        kind: u32,
        status: u32,
        size: u64,
    }

    /// `struct nmreq_register`.
    RegisterBody: 56 {
        offset: u64,
        memsize: u64,
        tx_slots: u32,
        rx_slots: u32,
        tx_rings: u16,
        rx_rings: u16,
        host_tx_rings: u16,
        host_rx_rings: u16,
        mem_id: u16,
        ring_id: u16,
        mode: u32,
        extra_bufs: u32,
        reserved: u32,
        flags: u64,
    }

    /// `struct nmreq_port_info_get`.
    PortInfoBody: 32 {
        memsize: u64,
        tx_slots: u32,
        rx_slots: u32,
        tx_rings: u16,
        rx_rings: u16,
        host_tx_rings: u16,
        host_rx_rings: u16,
        mem_id: u16,
        reserved: [u16; 3],
    }

    /// `struct nmreq_vale_attach`.
    AttachBody: 64 {
        register: RegisterBody,
        port_index: u32,
        reserved: u32,
    }

    /// `struct nmreq_vale_detach`.
    DetachBody: 8 {
        port_index: u32,
        reserved: u32,
    }

    /// `struct nmreq_vale_list`.
    ListBody: 8 {
        bridge: u16,
        reserved: u16,
        port: u32,
    }

    /// `struct nmreq_port_hdr`.
    PortHeaderBody: 8 {
        len: u32,
        reserved: u32,
    }

    /// `struct nmreq_vale_newif`.
    NewBody: 16 {
        tx_slots: u32,
        rx_slots: u32,
        tx_rings: u16,
        rx_rings: u16,
        mem_id: u16,
        reserved: u16,
    }

    /// `struct nmreq_vale_polling`.
    PollingBody: 16 {
        mode: u32,
        first_cpu: u32,
        cpus: u32,
        reserved: u32,
    }

    /// `struct nmreq_pools_info`.
    PoolsBody: 64 {
        memsize: u64,
        mem_id: u16,
        reserved: [u16; 3],
        if_offset: u64,
        if_total: u32,
        if_size: u32,
        ring_offset: u64,
        ring_total: u32,
        ring_size: u32,
        buf_offset: u64,
        buf_total: u32,
        buf_size: u32,
    }

    /// `struct nmreq_sync_kloop_start`.
    KloopBody: 8 {
        sleep_us: u32,
        reserved: u32,
    }

    /// `struct nmreq`, of the legacy requests.
    Legacy: 60 {
        name: [u8; 16],
        version: u32,
        offset: u32,
        memsize: u32,
        tx_slots: u32,
        rx_slots: u32,
        tx_rings: u16,
        rx_rings: u16,
        ring_id: u16,
        cmd: u16,
        arg1: u16,
        arg2: u16,
        arg3: u32,
        flags: u32,
        spare: u32,
    }
}

impl Legacy {
    pub(crate) const HW_RING: u16 = 0x4000;
    pub(crate) const SW_RING: u16 = 0x2000;
    pub(crate) const RING_MASK: u16 = 0x0fff;
    pub(crate) const NO_TX_POLL: u16 = 0x1000;
    pub(crate) const DO_RX_POLL: u16 = 0x8000;
    pub(crate) const MODE_MASK: u32 = 0xf;
}
