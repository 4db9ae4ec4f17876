# Installs the package $2 in a copy of the Debian tree $1, in a mount namespace of its own, and removes it again. Leaves the kernel and the
# initramfs with the driver in the folder $3. Fails with the first thing that is not as it has to be.
set -euxo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C
root=$3/root
mkdir "$3/upper" "$3/work" "$root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$3/upper,workdir=$3/work" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
cp "$2" "$root/tmp/driver.deb"
# Quicker than by default. The first has all modules that Debian's has, the second only those that are asked for.
echo COMPRESSLEVEL=1 >"$root/etc/initramfs-tools/conf.d/test"
within() { chroot "$root" "$@"; }
initramfs=$(cd "$1" && echo boot/initrd.img-*)
release=${initramfs#boot/initrd.img-}

[[ -z $(within lintian --allow-root --display-info --tag-display-limit 0 /tmp/driver.deb) ]]
within dpkg -i /tmp/driver.deb
within dkms status | grep -F "$release" | grep ': installed$'
within modinfo -k "$release" -F filename ringway_e1000 | grep /updates/dkms/
within lsinitramfs "/$initramfs" >"$3/files"
grep 'updates/dkms/ringway_e1000\.ko' "$3/files"
cp "$root/$initramfs" "$3/initramfs"
cp "$root/boot/vmlinuz-$release" "$3/kernel"

echo MODULES=list >>"$root/etc/initramfs-tools/conf.d/test"
within dpkg -r ringway-e1000-dkms
[[ -z $(within dkms status) ]]
[[ ! -e $root/lib/modules/$release/updates/dkms/ringway_e1000.ko ]]
within lsinitramfs "/$initramfs" >"$3/files"
! grep ringway "$3/files"
