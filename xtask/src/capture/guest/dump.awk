# Each file named on standard input: a line "F PATH", then its lines behind a bar. One process reads all of
# them. A file that cannot be opened, or is gone, is left out.
{
    path = $0
    got = (getline line < path)
    if (got < 0)
        next
    print "F " path
    while (got > 0) {
        print "|" line
        got = (getline line < path)
    }
    close(path)
}
END { print "E" }
