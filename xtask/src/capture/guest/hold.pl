# hold.pl NAME MIB OPTION…: a process of that name that maps and touches memory and keeps it.
#   huge          map from the hugetlb pool
#   shm=KEY       a System V segment of that key, created or attached; with huge: from the hugetlb pool
#   nothp         MADV_NOHUGEPAGE
#   untouched     reserve only
#   interleave=M  MPOL_INTERLEAVE over the nodes in the bit mask M;  bind=M  MPOL_BIND
#   lock          mlock
#   every=S       touch all of it again every S seconds
# Touching is pread(2) of a file of random bytes into the mapping: no page is zero or cheap to compress.
# The numbers are the system calls and constants of x86-64.
sub MMAP() { 9 }
sub PREAD() { 17 }
sub MADVISE() { 28 }
sub SHMAT() { 30 }
sub MLOCK() { 149 }
sub SET_MEMPOLICY() { 238 }
my ($name, $mib, @options) = @ARGV;
my %option = map { my ($key, $value) = split /=/; ($key, $value // 1) } @options;
my $length = $mib << 20;
$0 = $name;

sub check { $_[1] == -1 and die "$name: $_[0]: $!\n"; $_[1] }

for (['interleave', 3], ['bind', 2]) {
    my ($policy, $mode) = @$_;
    next unless $option{$policy};
    my $mask = pack 'Q', $option{$policy};
    check $policy, syscall SET_MEMPOLICY, $mode, $mask, 64;
}
my $address;
if (my $key = $option{shm}) {
    my $id = shmget $key + 0, $length, 01640 | ($option{huge} ? 04000 : 0);
    defined $id or die "$name: shmget: $!\n";
    $address = check 'shmat', syscall SHMAT, $id + 0, 0, 0;
} else {
    $address = check 'mmap', syscall MMAP, 0, $length, 3, 0x22 | ($option{huge} ? 0x40000 : 0), -1, 0;
}
check 'madvise', syscall MADVISE, $address, $length, 15 if $option{nothp};

open my $pattern, '<', '/srv/pattern' or die "$name: pattern: $!\n";
sub touch {
    for (0 .. $mib - 1) {
        check 'touch', syscall PREAD, fileno $pattern, $address + ($_ << 20), 1 << 20, 0;
    }
}
touch unless $option{untouched};
check 'mlock', syscall MLOCK, $address, $length if $option{lock};
open my $ready, '>', "/run/$name" or die "$name: ready: $!\n";
close $ready;
for (;;) {
    if ($option{every}) { select undef, undef, undef, $option{every}; touch }
    else { sleep 3600 }
}
