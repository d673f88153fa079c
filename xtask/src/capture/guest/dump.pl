# dump.pl OPTION…: each file named on standard input: a line "F PATH", then its lines behind a bar; "E" at the end.
#   marks     of zoneinfo and vmstat keep the lines that bear on watermarks and limits
#   realtime  read as a real-time task (SCHED_FIFO), which has dirty limits of its own
# One process reads all of them before it writes anything, so that writing does not show in them. A file that
# cannot be read is left out.
#
# What the kernel derives it prints beside what it derives it from, a moment later. So meminfo, vmstat and zoneinfo
# come first and are read twice, in mirrored order, until both readings agree on memory. Should they not within a
# second, all other programs are stopped meanwhile; should they not even then, nothing is written.
# The virtual machine has no modules of perl.
sub SCHED_SETSCHEDULER() { 144 }
my %option = map { $_ => 1 } @ARGV;
if ($option{realtime}) {
    my $priority = pack 'i', 1;
    0 == syscall SCHED_SETSCHEDULER, 0, 1, $priority or die "dump: sched_setscheduler: $!\n";
}

# A file, into a buffer whose memory is there already where that matters.
sub content {
    my ($path, $buffer) = @_;
    open my $file, '<', $path or return;
    my ($length, $got) = (0, 1);
    while ($got) {
        $got = sysread $file, $$buffer, 1 << 16, $length;
        defined $got or return;
        $length += $got;
    }
    1;
}

# The lines of the three files that must agree.
sub memory {
    my $lines = '';
    for (@_) {
        while ($$_ =~ /^(?:(?:Mem(?:Free|Available)|(?:Ina|A)ctive\(file\)|[SK]Reclaimable):
                        |nr_(?:free_pages|(?:ina|a)ctive_file|dirty_(?:background_)?threshold)\x20
                        |\s+(?:boost|min|low|high)\s).*\n/xmg) {
            $lines .= $&;
        }
    }
    $lines;
}

# Sends a signal to every process that has a program, but for this one and the first.
sub signal {
    my ($signal) = @_;
    opendir my $processes, 'proc';
    my @others = grep { /^[0-9]+$/ && $_ != $$ && $_ != 1 && readlink "proc/$_/exe" } readdir $processes;
    kill $signal, @others;
}

my @paths = <STDIN>;
chomp @paths;
my @quiet = qw(proc/zoneinfo proc/meminfo proc/vmstat);
my @first = map { my $buffer = ' ' x (1 << 17); \$buffer } @quiet;
my @second = map { my $buffer = ' ' x (1 << 17); \$buffer } @quiet;
my $rests;
for my $attempt (1 .. 80) {
    # Each time again, for what was started in between.
    signal 'STOP' if $attempt > 20;
    content $quiet[$_], $first[$_] for 0, 1, 2;
    content $quiet[$_], $second[$_] for 2, 1, 0;
    $rests = memory(@first) eq memory(@second) and last;
    select undef, undef, undef, 0.05;
}
signal 'CONT';
$rests or die "dump: memory does not come to rest\n";

my %quiet;
@quiet{@quiet} = @first;
my $output = '';
for my $path (@paths) {
    my $text = $quiet{$path};
    if (!$text) {
        my $buffer = '';
        $text = \$buffer;
        content $path, $text or next;
    }
    $output .= "F $path\n";
    for my $line (split /^/, $$text) {
        next if $option{marks} && $path eq 'proc/zoneinfo' && $line =~ /^ +(?:nr_|numa_|workingset_|pg|per-node)/;
        next if $option{marks} && $path eq 'proc/vmstat' && $line !~ /^nr_/;
        chomp $line;
        $output .= "|$line\n";
    }
}
print $output, "E\n";
