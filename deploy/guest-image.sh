#!/usr/bin/env bash
# Build a tiny guest that boots in seconds, from Debian packages only.
#
#   guest-image.sh DIR
#
# Leaves in DIR: vmlinuz and initrd.gz (direct kernel boot), blank.qcow2 (an empty 32 MiB disk, the image of such a guest)
# and disk.qcow2 (the same guest on a bootable disk). Built once: a second run finds it and is done.
#
# The guest needs 96 MiB, or 128 MiB when it boots from the disk. On its serial console (ttyS0) it prints, when it is up
# and has read its config drive if it has one:
#     config-drive hostname=NAME
#     config-drive uuid=UUID
#     config-drive user_data sha256=HEX
#     disk vda 1073741824
#     nic eth0 fa:16:3e:00:00:01
#     guest up UUID
# (UUID of the last is the SMBIOS system UUID.) It powers off when its power button is pressed, and runs each line
# that is typed at the console.
#
# Needs: apt-get (with its lists, or root's rights to fetch them), dpkg-deb, python3, gzip, xz-utils, qemu-utils.
set -euo pipefail

main() {
  mkdir -p "$1"
  local dir recipe
  dir=$(cd "$1" && pwd)
  exec 9> "$dir/.lock"
  flock 9 # two at once would build twice
  recipe=$(sha256sum < "${BASH_SOURCE[0]}")
  if [ "$(cat "$dir/.recipe" 2> /dev/null || true)" = "$recipe" ]; then
    echo "$dir"
    return
  fi
  work=$dir/build
  export PATH=$work/tools/usr/bin:$PATH MTOOLS_SKIP_CHECK=1
  rm -rf "$work"
  trap 'rm -rf "$work"' EXIT
  download
  initramfs
  cp "$work"/kernel/boot/vmlinuz-* "$dir/vmlinuz"
  pack "$work/root" | gzip -6 > "$dir/initrd.gz"
  qemu-img create -q -f qcow2 "$dir/blank.qcow2" 32M
  bootable_disk "$dir"
  echo "$recipe" > "$dir/.recipe"
  echo "$dir"
}

download() {
  local kernel modules
  mkdir -p "$work/root"
  kernel=$(kernel_package)
  if [ -z "$kernel" ]; then
    if [ "$(id -u)" = 0 ]; then apt-get update -qq; else sudo -n apt-get update -qq; fi >&2
    kernel=$(kernel_package)
  fi
  if [ -z "$kernel" ]; then
    echo "apt-get knows no kernel for virtual machines" >&2
    return 1
  fi
  unpack kernel "$kernel"
  modules=${kernel/image/modules} # a package of their own in Ubuntu
  if apt-cache show "$modules" &> /dev/null; then unpack kernel "$modules"; fi
  unpack tools busybox-static syslinux syslinux-common mtools
  if [ -n "$(find "$work/kernel" -name '*.ko.zst' -print -quit)" ]; then unpack tools zstd; fi
}

kernel_package() {
  apt-cache depends linux-image-cloud-amd64 linux-image-virtual 2> /dev/null |
    awk '/Depends: linux-image-[0-9]/ { print $2; exit }' || true
}

# The files of packages, into a folder of $work.
unpack() {
  local folder=$1 package
  shift
  rm -rf "$work/packages"
  mkdir -p "$work/packages" "$work/$folder"
  (cd "$work/packages" && apt-get download -qq -o APT::Sandbox::User=root "$@")
  for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$work/$folder"; done
}

initramfs() {
  local root=$work/root
  mkdir -p "$root"/{bin,dev,proc,sys,etc,tmp,run,mnt,modules}
  install -m 755 "$(find "$work/tools" -path '*/bin/busybox' -print -quit)" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  : > "$root/etc/modules"
  for module in virtio_pci virtio_blk virtio_scsi virtio_net virtio_rng sd_mod sr_mod ata_piix ahci e1000 8139cp \
    evdev button isofs; do
    add_module "$module"
  done
  init_script > "$root/init"
  chmod 755 "$root/init"
}

# One kernel module and what it depends on, depth first; a name that this kernel has built in is skipped.
add_module() {
  local name=${1//-/_} file dependency
  if grep -qx "$name" "$work/root/etc/modules"; then return; fi
  file=$(find "$work/kernel" -path '*/lib/modules/*' \( -name "$name.ko*" -o -name "${name//_/-}.ko*" \) -print -quit)
  if [ -z "$file" ]; then return; fi
  case $file in
    *.xz) xz -dc "$file" > "$work/root/modules/$name.ko" ;;
    *.zst) zstd -qdc "$file" > "$work/root/modules/$name.ko" ;;
    *) cp "$file" "$work/root/modules/$name.ko" ;;
  esac
  for dependency in $(module_depends "$work/root/modules/$name.ko"); do add_module "$dependency"; done
  echo "$name" >> "$work/root/etc/modules"
}

module_depends() {
  python3 -c '
import re, sys
found = re.search(rb"\0depends=([^\0]*)\0", open(sys.argv[1], "rb").read())
print(found[1].decode().replace(",", " ") if found else "")' "$1"
}

init_script() {
  cat << 'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
for module in $(cat /etc/modules); do insmod /modules/$module.ko 2> /dev/null; done
echo 1 > /proc/sys/kernel/printk

# The power button's events are 24 bytes; type 1 (EV_KEY), code 116 (KEY_POWER), value 1 is a press.
for input in /sys/class/input/event*; do
  [ "$(cat $input/device/name 2> /dev/null)" = "Power Button" ] || continue
  (
    while :; do
      dd if=/dev/input/${input##*/} bs=24 count=1 2> /dev/null | hexdump -v -e '24/1 "%02x"' > /tmp/press.${input##*/}
      if [ "$(cut -c 33-48 /tmp/press.${input##*/})" = 0100740001000000 ]; then
        echo "power button"
        poweroff -f
      fi
    done
  ) &
done

# disks appear a moment after their drivers
for try in 1 2 3 4 5 6 7 8 9 10; do
  ls /sys/class/block | grep -q '^[vhs][dr]' && break
  sleep 0.1
done
sleep 0.2

field() { tr -d '\n' < "$1" | sed -n "s/.*\"$2\": *\"\([^\"]*\)\".*/\1/p"; }
for device in /dev/sr0 /dev/sd? /dev/vd? /dev/hd?; do
  [ -b $device ] || continue
  # the volume's label: byte 40 of the primary volume descriptor, which is sector 16
  [ "$(dd if=$device bs=1 skip=$((16 * 2048 + 40)) count=8 2> /dev/null)" = config-2 ] || continue
  mount -t iso9660 -o ro $device /mnt || continue
  latest=/mnt/openstack/latest
  echo "config-drive hostname=$(field $latest/meta_data.json hostname)"
  echo "config-drive uuid=$(field $latest/meta_data.json uuid)"
  if [ -e $latest/user_data ]; then
    echo "config-drive user_data sha256=$(sha256sum < $latest/user_data | cut -d ' ' -f 1)"
  fi
  break
done
for disk in /sys/class/block/[vhs]d[a-z]; do
  [ -e $disk/size ] && echo "disk ${disk##*/} $(($(cat $disk/size) * 512))"
done
for nic in /sys/class/net/*; do
  [ ${nic##*/} = lo ] || echo "nic ${nic##*/} $(cat $nic/address)"
done
echo "guest up $(cat /sys/class/dmi/id/product_uuid 2> /dev/null || echo unknown)"

while :; do
  while read -r line; do eval "$line"; done < /dev/ttyS0
  sleep 1
done
INIT
}

# Print a folder as a cpio archive (newc), so that no cpio program is needed.
pack() {
  python3 - "$1" << 'PACK'
import os, stat, sys

top, number = sys.argv[1], 0


def put(name, mode, body=b"", device=(0, 0)):
    global number
    number += 1
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(body), 0, 0, *device, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    for part in (header, body):
        sys.stdout.buffer.write(part + b"\0" * (-len(part) % 4))


for folder, folders, files in os.walk(top):
    folders.sort()
    relative = os.path.relpath(folder, top)
    if relative != ".":
        put(relative, stat.S_IFDIR | 0o755)
    for name in sorted(files):
        path = os.path.join(folder, name)
        status = os.lstat(path)
        body = os.readlink(path).encode() if stat.S_ISLNK(status.st_mode) else open(path, "rb").read()
        put(os.path.normpath(os.path.join(relative, name)), status.st_mode, body)
put("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
put("TRAILER!!!", 0)
PACK
}

# A FAT file system over the whole disk, which SYSLINUX starts from.
bootable_disk() {
  local raw=$work/disk.raw
  truncate -s 64M "$raw"
  mformat -i "$raw" -h 64 -s 32 -T 131072 -v GUEST ::
  printf 'SERIAL 0 115200\nDEFAULT guest\nLABEL guest\n KERNEL vmlinuz\n INITRD initrd.gz\n APPEND console=ttyS0 no_timer_check\n' \
    > "$work/syslinux.cfg"
  mcopy -i "$raw" "$1/vmlinuz" "$1/initrd.gz" "$work/syslinux.cfg" ::
  syslinux --install "$raw"
  qemu-img convert -f raw -O qcow2 -c "$raw" "$1/disk.qcow2"
}

main "${1:?usage: guest-image.sh DIR}"
